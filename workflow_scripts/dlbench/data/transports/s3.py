"""S3: s3://bucket/key.

boto3 finds credentials, region and endpoint (AWS_ENDPOINT_URL). Without credentials
the request is not signed, as for public buckets.
"""

from urllib.parse import urlsplit

from dlbench.common import tools
from dlbench.data.transports import CHUNK_BYTES, Response, TransportError


def open(url: str, offset: int, validator: str | None) -> Response:
    try:
        import boto3
        import botocore
    except ImportError:
        command = tools.install_command("storage")
        raise TransportError(f"needs boto3; install it with: {command}") from None
    parts = urlsplit(url)
    request = {"Bucket": parts.netloc, "Key": parts.path.lstrip("/")}
    session = boto3.Session()
    signature = None if session.get_credentials() else botocore.UNSIGNED
    try:
        client = session.client("s3", config=botocore.config.Config(signature_version=signature))
        head = client.head_object(**request)
        size_bytes, version = head["ContentLength"], head["ETag"]
        first = offset if validator in (None, version) and offset <= size_bytes else 0
        if first == size_bytes:  # S3 refuses an empty range
            return Response([], first, size_bytes, version)
        # IfMatch: S3 refuses a file that changes between the two requests.
        reply = client.get_object(**request, Range=f"bytes={first}-", IfMatch=version)
    except botocore.exceptions.ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        transient = status >= 500 or status in (412, 429)
        raise TransportError(f"S3 refuses: {error}", transient) from error
    except (botocore.exceptions.BotoCoreError, ValueError) as error:  # no region, bad endpoint
        transient = isinstance(error, botocore.exceptions.HTTPClientError)
        raise TransportError(f"S3 request failed: {error}", transient) from error
    return Response(_chunks(reply["Body"]), first, size_bytes, version)


def _chunks(body):
    import botocore

    try:
        yield from body.iter_chunks(CHUNK_BYTES)
    except (botocore.exceptions.BotoCoreError, OSError) as error:
        raise TransportError(f"the connection broke: {error}", transient=True) from error
