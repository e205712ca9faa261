<?php

declare(strict_types=1);

namespace Pronghorn;

/** The server, or the RPC server, is gone or did not answer in time. */
final class ConnectionLost extends \RuntimeException implements Exception
{
}
