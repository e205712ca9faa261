<?php

declare(strict_types=1);

namespace Pronghorn\Jobs;

use Pronghorn\Exception;

/** A job that somebody waited for was given up. The message says why. */
final class JobFailed extends \RuntimeException implements Exception
{
}
