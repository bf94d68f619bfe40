"""The proxy's data path: HTTP/1.1 from clients and to engines, over asyncio protocols."""
