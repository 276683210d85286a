"""A server of MCP for tests: a shop that remembers what it sold in its session."""

import os

from mcp.server import MCPServer  # pyright: ignore[reportMissingImports]

server = MCPServer("shop")
sold: list[str] = []


@server.tool()
def price(item: str) -> int:
    """What an item costs."""
    return {"mug": 3, "cup": 4}[item]


@server.tool()
def sell(item: str) -> str:
    """Sells an item, and says all that were sold."""
    sold.append(item)
    return " ".join(sold)


@server.tool()
def flood() -> str:
    """Says more than anybody wants to read."""
    return "x" * 9000


@server.tool()
def spin() -> str:
    """Never answers."""
    while True:
        pass


@server.tool()
def variable(name: str) -> str:
    """A variable of the server's environment."""
    return os.environ.get(name, "none")


@server.tool()
def leave() -> str:
    """Ends the server."""
    os._exit(3)


if __name__ == "__main__":
    server.run()
