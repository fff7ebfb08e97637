"""The options of commands that sign versions or require signatures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from repogen.artifacts.attestation import SigningKey, TrustedSigner
from repogen.cli.group import FILE
from repogen.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., None]


@dataclass(frozen=True)
class Signing:
    """The values of the options that select a signing key."""

    private_key: Path | None
    certificate: Path | None
    chain: tuple[Path, ...]
    keyless: bool

    def key(self) -> SigningKey | None:
        """Return the key, None without one.

        Raises:
            SpecError: Options contradict each other.
        """
        if self.keyless and self.private_key is not None:
            raise SpecError("--sign-keyless and --sign-key are mutually exclusive", code="sign.options")
        if self.private_key is None and (self.certificate is not None or self.chain):
            raise SpecError("--sign-certificate and --sign-chain require --sign-key", code="sign.options")
        if self.private_key is None and not self.keyless:
            return None
        return SigningKey(self.private_key, self.certificate, self.chain)


@dataclass(frozen=True)
class Trust:
    """The values of the options that select whose signatures are accepted."""

    required: bool
    public_key: Path | None
    certificates: tuple[Path, ...]
    identity: str | None
    issuer: str | None

    def signer(self) -> TrustedSigner | None:
        """Return whose signatures are required, None if none are.

        Raises:
            SpecError: Options are missing or empty, or contradict each other.
        """
        identity = tuple(value for value in (self.identity, self.issuer) if value is not None)
        choices = (self.public_key is not None, bool(self.certificates), bool(identity))
        if not self.required and not any(choices):
            return None
        # a variable of the shell that is not set gives an empty value
        is_empty = Path() in {self.public_key, *self.certificates} or "" in identity
        if sum(choices) != 1 or len(identity) == 1 or is_empty:
            raise SpecError(
                "a signature is required, but the options do not specify exactly one signer",
                "pass one of --key, --certificate, or --identity with --issuer",
                code="verify.signer",
            )
        return TrustedSigner(self.public_key, self.certificates, self.identity or "", self.issuer or "")


def signing_options(command: Command) -> Command:
    """Add the options of a signing key; the command receives them as ``signing``."""

    @wraps(command)
    def collect(
        *arguments: Any,  # noqa: ANN401 - those of the command
        sign_key: Path | None,
        sign_certificate: Path | None,
        sign_chain: tuple[Path, ...],
        sign_keyless: bool,
        **options: Any,  # noqa: ANN401 - the same
    ) -> None:
        command(*arguments, signing=Signing(sign_key, sign_certificate, sign_chain, sign_keyless), **options)

    for option in reversed(
        (
            click.option("--sign-key", type=FILE, metavar="FILE", help="Sign with this private key (PEM)."),
            click.option("--sign-certificate", type=FILE, metavar="FILE", help="Certificate of the key (PEM)."),
            click.option(
                "--sign-chain",
                type=FILE,
                multiple=True,
                metavar="FILE",
                help="Intermediate certificate (PEM), between the key's certificate and the root; repeatable.",
            ),
            click.option("--sign-keyless", is_flag=True, help="Sign with the identity of the CI job (Sigstore)."),
        )
    ):
        collect = option(collect)
    return collect


def trust_options(command: Command) -> Command:
    """Add the options of required signatures; the command receives them as ``trust``."""

    @wraps(command)
    def collect(
        *arguments: Any,  # noqa: ANN401 - those of the command
        require_signature: bool,
        key: Path | None,
        certificate: tuple[Path, ...],
        identity: str | None,
        issuer: str | None,
        **options: Any,  # noqa: ANN401 - the same
    ) -> None:
        command(*arguments, trust=Trust(require_signature, key, certificate, identity, issuer), **options)

    for option in reversed(
        (
            click.option("--require-signature", is_flag=True, help="Reject versions without a valid signature."),
            click.option("--key", type=FILE, metavar="FILE", help="Public key of the required signatures (PEM)."),
            click.option(
                "--certificate",
                type=FILE,
                multiple=True,
                metavar="FILE",
                help="Root certificate of the required signatures (PEM); repeatable.",
            ),
            click.option("--identity", help="Signer of keyless signatures, such as a workflow's URL."),
            click.option("--issuer", metavar="URL", help="OpenID Connect issuer of --identity."),
        )
    ):
        collect = option(collect)
    return collect
