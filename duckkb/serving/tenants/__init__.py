"""Who may ask a base that is served: tokens -> `Caller`, the tenants behind them, and the log of what was decided."""

from duckkb.serving.tenants.authentication import BearerTokens as BearerTokens
from duckkb.serving.tenants.authentication import Denial as Denial
from duckkb.serving.tenants.authentication import bearer as bearer
