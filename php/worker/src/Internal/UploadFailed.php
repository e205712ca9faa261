<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Exception;

/** An uploaded file that isn't there, or can't be moved. */
final class UploadFailed extends \RuntimeException implements Exception
{
}
