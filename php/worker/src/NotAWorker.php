<?php

declare(strict_types=1);

namespace Pronghorn;

/** This process was not started by Pronghorn, or has no call under way. */
final class NotAWorker extends \LogicException implements Exception
{
}
