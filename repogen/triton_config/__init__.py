"""config.pbtxt: the typed sections of a spec, the text and its source positions, the rules, and rendering.

The protobuf classes come from tritonclient, but are loaded without gRPC (see ``text.parse.model_config_pb2``).
"""
