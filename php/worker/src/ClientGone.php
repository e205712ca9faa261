<?php

declare(strict_types=1);

namespace Pronghorn;

/**
 * The client left before its reply was complete, or before its request was. Thrown into the
 * generator that makes the reply, and to whoever reads the request.
 */
final class ClientGone extends \RuntimeException implements Exception
{
}
