<?php

declare(strict_types=1);

namespace Pronghorn\Symfony;

/**
 * An event: with `spawn: fork` workers are forked from this process now, which has booted the
 * kernel. Listeners close what processes can't share; Doctrine's connections are closed by then.
 */
final class BeforeFork
{
}
