"""Small synthetic traces in the public formats of Azure Functions, and the generator that made them."""
