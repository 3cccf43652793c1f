"""The answer of the REST API at addresses that it does not have, in its own form."""

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

_PROMETHEUS = ("query", "query_range", "labels", "label", "series", "metadata", "write", "status", "read")


@csrf_exempt
def unknown_operation(request: HttpRequest) -> JsonResponse:
    """Answer 404, with the right address where Prometheus' API is meant."""
    name = request.path_info.removeprefix("/api/v1/").split("/")[0]
    hint = "/api/v1/schema lists those that exist"
    if request.path_info.startswith("/api/v1/") and name in _PROMETHEUS:
        hint = f"Prometheus' API is at /prometheus/api/v1/{name}: let your client's address end with /prometheus"
    return JsonResponse({"error": f"there is no such address here; {hint}"}, status=404)
