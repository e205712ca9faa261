<?php

declare(strict_types=1);

namespace Pronghorn;

/** The RPC server refused a call; the message is the server's own text. */
final class RpcError extends \RuntimeException implements Exception
{
}
