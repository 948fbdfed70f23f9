"""What pytest does not import where an optional package is missing."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("lmms_eval") else ["src/eos/evaluation/lmms_model.py"]
