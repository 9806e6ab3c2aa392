"""S3: s3://bucket/key.

Credentials, region and endpoint (AWS_ENDPOINT_URL) are taken from where the AWS
tools take them; without credentials the request is not signed, as public
buckets want it.
"""

from urllib.parse import urlsplit

from dlbench.transports import CHUNK_BYTES, Answer, TransportError


def open(url, offset, validator):
    try:
        import boto3
        import botocore
    except ImportError:
        raise TransportError("needs boto3; install it with: uv sync --extra storage") from None
    parts = urlsplit(url)
    request = {"Bucket": parts.netloc, "Key": parts.path.lstrip("/")}
    session = boto3.Session()
    signature = None if session.get_credentials() else botocore.UNSIGNED
    client = session.client("s3", config=botocore.config.Config(signature_version=signature))
    try:
        head = client.head_object(**request)
        first = offset if validator in (None, head["ETag"]) else 0
        if first >= head["ContentLength"] > 0:
            return Answer([], first, head["ContentLength"], head["ETag"])
        # IfMatch: a file that changes between the two requests is an error, not a mixture.
        answer = client.get_object(**request, Range=f"bytes={first}-", IfMatch=head["ETag"])
    except botocore.exceptions.ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        raise TransportError(f"S3 refuses: {error}", passing=status >= 500) from error
    except botocore.exceptions.BotoCoreError as error:
        raise TransportError(f"S3 cannot be asked: {error}", passing=True) from error
    return Answer(_chunks(answer["Body"]), first, head["ContentLength"], head["ETag"])


def _chunks(body):
    import botocore

    try:
        yield from body.iter_chunks(CHUNK_BYTES)
    except (botocore.exceptions.BotoCoreError, OSError) as error:
        raise TransportError(f"the connection broke: {error}", passing=True) from error
