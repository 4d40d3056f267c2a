"""The webhook's own certificates: an authority and a leaf, kept in one Secret, renewed before they end.

`state` is pure: what the Secret and the webhook configuration hold, and the time, give the next step. The order
guarantees that the API server trusts whatever the webhook serves: a new authority is first added to the bundle that
the configuration holds, beside the old one, and signs a leaf only in a later pass. Deleting the Secret revokes all at
once: pods created until the new one is mounted (a minute or two) get no values.

Only the controller's leader runs `rotation`; `x509` makes the certificates. The Secret holds tls.crt and tls.key for
the webhook, and for us ca.key and ca.crt: every authority that is to be trusted, the one that signs first.
"""

from raddle_operator.certificates.rotation import MAX_TRUSTED, CertificateSettings, ensure, read_state
from raddle_operator.certificates.state import (
    AUTHORITY_RENEWED_BEFORE,
    CHECK_AGAIN,
    LEAF_RENEWED_BEFORE,
    SETTLE,
    State,
    Step,
    decide,
)
from raddle_operator.certificates.x509 import (
    AUTHORITY_LIFE,
    LEAF_LIFE,
    Authority,
    local_issue,
    new_authority,
    new_leaf,
)

__all__ = [
    "AUTHORITY_LIFE",
    "AUTHORITY_RENEWED_BEFORE",
    "CHECK_AGAIN",
    "LEAF_LIFE",
    "LEAF_RENEWED_BEFORE",
    "MAX_TRUSTED",
    "SETTLE",
    "Authority",
    "CertificateSettings",
    "State",
    "Step",
    "decide",
    "ensure",
    "local_issue",
    "new_authority",
    "new_leaf",
    "read_state",
]
