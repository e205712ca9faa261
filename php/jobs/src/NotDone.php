<?php

declare(strict_types=1);

namespace Pronghorn\Jobs;

use Pronghorn\Exception;

/** A job that somebody waited for is not done yet, or is not known to the server: the message says which. */
final class NotDone extends \RuntimeException implements Exception
{
}
