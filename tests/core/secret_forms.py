"""Words of a command line with a planted secret, in the forms that users type."""

SECRET = "plantedsecret789"
WORDS = (
    f"+tracking.api_key={SECRET}",
    f"++tracking.settings.api_key='{SECRET}'",
    f"tracking.api_key=x {SECRET}",
    f'tracking.api_key="{SECRET} {SECRET}"',
    f"+tracking.settings={{api_key:{SECRET}}}",
    f'+tracking.settings={{"hub_token":"a {SECRET}",b:[1]}}',
    f"+tracking.parts=[{{token:{SECRET}}},2]",
    f"tracking={{a:{{secret:{SECRET}}},b:1}}",
    f"search.storage=postgresql://me:{SECRET}@host/runs",
    f"search.storage=postgresql://me:two {SECRET}@host/runs",
    f"search.storage=postgresql://me@host/runs?sslpassword={SECRET}",
    f"search.storage=redis://:{SECRET}@host",
    f"backbone.weights=https://{SECRET}@host/a.pth",
    f"backbone.weights=git+https://{SECRET}@host/a.pth",
    f"backbone.weights=https://host/a.pth?token={SECRET}",
    f"backbone.weights=https://host/a.pth?X-Amz-Date=1&X-Amz-Signature={SECRET}",
    f"backbone.weights=https://host/a.pth?sv=1&sig={SECRET}&x=1",
    f"backbone.weights=https://host/a.pth?AWSAccessKeyId={SECRET}",
    f"+data.reader.header='Authorization: Bearer {SECRET}'",
)
