<?php

/**
 * What the extension has for applications, for analysers and editors. Nothing loads this file.
 */

declare(strict_types=1);

namespace Pronghorn;

/**
 * Thrown into a call whose time is up, at the next line that PHP runs. Whoever catches it has a
 * second to end.
 */
class DeadlineExceeded extends \Error
{
}
