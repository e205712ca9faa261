<?php

declare(strict_types=1);

namespace Pronghorn;

/** What this package throws, all of it. */
interface Exception extends \Throwable
{
}
