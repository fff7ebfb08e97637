"""Names of the files in a repository's root, in a model's directory and in a version's directory."""

OWNER_FILE = "repogen.json"
"""Which command owns the repository, in its root."""
MODEL_FILE = "model.onnx"
DATA_FILE = "model.onnx.data"
PYTHON_FILE = "model.py"
REQUIREMENTS_FILE = "requirements.txt"
PACKED_CODE_FILE = "packed_model.py"
"""The user's code in a version with packed packages, where ``model.py`` makes the packages importable."""
PACKAGES_DIRECTORY = "packages"
"""The packed packages of Python code, below the version's directory."""
METADATA_FILE = "METADATA"
METADATA_SUFFIX = ".dist-info"
"""Of the directories with the metadata of packages, next to the code of each."""
ADOPTED_CONFIG = "config.pbtxt.adopted"
CONFIG_FILE = "config.pbtxt"
MANIFEST_FILE = "manifest.json"
UNCONFIRMED_FILE = "unconfirmed"
"""An empty file in a version directory until the registry records that the version is published."""
ATTESTATION_FILE = "attestation.json"
"""How the version was built, in the in-toto format; with times, so it is not part of the version's digest."""
SBOM_FILE = "sbom.cdx.json"
"""The Python packages that took part in the build, in the CycloneDX format."""
SIGNATURE_FILE = "model.sig"
"""The signature over every other file of the version, in the format of OpenSSF Model Signing."""

ATTESTATION_FILES = (ATTESTATION_FILE, SBOM_FILE, SIGNATURE_FILE)
"""Files in a version directory that describe the version, and that its manifest does not list."""

RESERVED_FILES = frozenset(
    {
        *(MODEL_FILE, DATA_FILE, PYTHON_FILE, REQUIREMENTS_FILE, CONFIG_FILE, MANIFEST_FILE, UNCONFIRMED_FILE),
        *ATTESTATION_FILES,
        *("golden.json", "golden.npz", "MLmodel", PACKED_CODE_FILE, PACKAGES_DIRECTORY),
    }
)
"""File names in a version directory that a user's companion files cannot have."""

MAX_METADATA_BYTES = 2**22
"""Largest metadata of a package that is read; a description of a megabyte is part of it."""
MAX_CONFIG_BYTES = 2**20
"""Largest config.pbtxt that is read. Real ones have kilobytes; the parser needs seconds for a MiB."""
MAX_CONFIG_TOKENS = 50_000
"""The largest number of tokens in a config.pbtxt that is read, enough for 3,000 inputs."""
