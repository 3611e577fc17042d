"""The run of two releases, from which networks start too."""

from tests.labeling.stages.conftest import warm as warm
