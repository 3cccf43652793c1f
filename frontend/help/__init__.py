"""Help inside of the product: the interfaces as the OpenAPI schema has them, each operation with a command to try.

``site_schema`` is the schema, ``operations`` cuts it for pages, ``curl`` writes the commands, ``pages`` answers.
"""
