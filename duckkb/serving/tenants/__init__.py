"""Access to a served base: tokens -> `Caller`, the tenants behind them, and the log of decisions."""

from duckkb.serving.tenants.authentication import BearerTokens as BearerTokens
from duckkb.serving.tenants.authentication import Denial as Denial
from duckkb.serving.tenants.authentication import bearer as bearer
