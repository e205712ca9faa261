<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Queue;

/** Thrown into a job when its `timeout` has passed; an Error, as few jobs catch those. */
final class TimeExceeded extends \Error
{
}
