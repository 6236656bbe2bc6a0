"""Photograph a node: find the engine, run the collectors, write the bundle. `session.capture` does all of it."""
