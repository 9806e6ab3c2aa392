"""Files that come with an installed Python package: package:sklearn.datasets.data/NAME."""

from dlbench.data.transports import Response, TransportError


def open(url: str, offset: int, validator: str | None) -> Response:
    import importlib.resources

    package, _, name = url.partition(":")[2].partition("/")
    try:
        content = importlib.resources.files(package).joinpath(name).read_bytes()
    except (ImportError, OSError) as error:
        raise TransportError(f"package {package} has no {name}: {error}") from error
    return Response([content[offset:]], offset, len(content))
