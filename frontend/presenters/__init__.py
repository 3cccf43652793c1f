"""What templates and the REST interface draw, made from models and answers."""
