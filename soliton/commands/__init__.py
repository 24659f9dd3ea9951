"""The command's parts, one small module per group of commands: arguments in, text and an exit code out.

Importing any of them imports neither torch, pydantic nor rich, so that `soliton --help` answers at once; what a command
needs it imports when it is called.
"""
