"""One process on one device, nothing to synchronise."""

from dlbench.trainer.strategy import Spec
from dlbench.trainer.tensorflow.strategies import Base


class Strategy(Base):
    @staticmethod
    def unsupported(run: Spec) -> str | None:
        if run.devices > 1:
            return f"strategy single drives one device; {run.devices} need mirrored or horovod"
        return None
