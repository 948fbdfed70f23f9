"""The version, and nothing else, so that it can be read without importing the package."""

__version__ = "0.1.0"
