"""Drawn faces with binary attributes, in the layout of CelebA: the data of the demo.

Nothing is downloaded and nothing is learned. A face's traits are sampled first, its measures and
colors follow, and both are drawn layer by layer with soft masks, a block of faces at once.
"""
