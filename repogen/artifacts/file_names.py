"""Names of the files in a model directory and in a version directory."""

MODEL_FILE = "model.onnx"
DATA_FILE = "model.onnx.data"
PYTHON_FILE = "model.py"
REQUIREMENTS_FILE = "requirements.txt"
CONFIG_FILE = "config.pbtxt"
MANIFEST_FILE = "manifest.json"
UNCONFIRMED_FILE = "unconfirmed"
"""Empty; in a version directory as long as the registry does not know that the version is published."""

RESERVED_FILES = frozenset(
    {
        *(MODEL_FILE, DATA_FILE, PYTHON_FILE, REQUIREMENTS_FILE, CONFIG_FILE, MANIFEST_FILE, UNCONFIRMED_FILE),
        *("golden.json", "golden.npz", "MLmodel"),
    }
)
"""Names in a version directory that no file of a user's may take."""
