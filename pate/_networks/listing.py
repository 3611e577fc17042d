"""The options of `pate student` for trained networks, listed without an import of Lightning."""

from pate._labeling.commands.outline import outline
from pate._labeling.commands.parsing import CommandParser, add_options, new_parser
from pate._labeling.commands.stages import DESCRIPTIONS
from pate._networks.student.options import OPTIONS

_TRAINER = "pytorch_lightning.trainer.trainer:Trainer"
_TRAINING = "pate._networks.student.training"
# what the run gives the data, the data give the model, and the command gives the trainer
_GIVEN = {"run", "optimize", "input_shape", "label_names", "constants"}
_GIVEN |= {"model", "train_dataloaders", "val_dataloaders", "dataloaders", "datamodule"}
_GIVEN |= {"weights_only"}


def list_network_options(command: str) -> CommandParser:
    """Return a parser that lists the options of one of Lightning's commands, and parses none."""
    parser = new_parser(f"student {command}", DESCRIPTIONS[command])
    add_options(parser, OPTIONS)
    for part, place in {
        "trainer": _TRAINER,
        "model": f"{_TRAINING}:Student",
        "data": f"{_TRAINING}:StudentData",
    }.items():
        parser.add_class_arguments(outline(place), part, skip={*_GIVEN})
    training = outline(f"{_TRAINER}.{command}")
    parser.add_class_arguments(training, as_group=False, skip={*_GIVEN})
    return parser
