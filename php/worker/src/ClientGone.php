<?php

declare(strict_types=1);

namespace Pronghorn;

/** The client left before its reply was complete. Thrown into the generator that makes the reply. */
final class ClientGone extends \RuntimeException implements Exception
{
}
