<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Exception;

/** The peer sent bytes that make no sense. Always a bug, never the application's fault. */
final class ProtocolError extends \RuntimeException implements Exception
{
}
