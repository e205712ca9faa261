<?php

declare(strict_types=1);

namespace Pronghorn;

/**
 * This process is of no use any more, such as one that can't forget a visitor. Thrown by a handler,
 * or by what a call has deferred: the process ends before it takes another call, and another one
 * takes its place. A call without a reply is not answered by it, so it is as if the worker had died
 * in it: the server gives it to another worker where that is allowed.
 */
final class WorkerSpoiled extends \RuntimeException implements Exception
{
}
