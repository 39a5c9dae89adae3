"""Commands about the same thing are one module: it makes values of arguments, calls the engine, and renders results."""
