"""Inference forensics: photograph a stalled or crashed LLM inference engine, and say which rank broke first."""

__version__ = "0.1.0"
