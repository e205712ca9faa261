<?php

declare(strict_types=1);

namespace Pronghorn\Symfony;

use Pronghorn\Snapshot;
use Pronghorn\Statics;
use Symfony\Component\Clock\Clock;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\EventDispatcher\Debug\TraceableEventDispatcher;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\EventDispatcher\EventDispatcherInterface;
use Symfony\Component\Routing\RequestContextAwareInterface;

/**
 * Takes back what Symfony keeps of a request and no reset of a service knows: static properties
 * such as trusted proxies, parameters of the router, and listeners that a request has added.
 */
final class Kept
{
    /**
     * Classes whose static properties go back. Those of others stay: a service that is kept may
     * rely on what it has put there when it was made.
     */
    private const SWITCHES = [
        'Carbon\\', 'Symfony\\Component\\Clock\\', 'Symfony\\Component\\HttpFoundation\\',
        'Symfony\\Component\\Intl\\Locale', 'Symfony\\Component\\VarDumper\\',
    ];

    private readonly Statics $statics;
    private readonly Snapshot $objects;
    private readonly ?EventDispatcher $dispatcher;
    private readonly Snapshot $listeners;
    private readonly int $count;

    /** The kernel has booted. */
    public function __construct(?ContainerInterface $container, ?EventDispatcherInterface $dispatcher)
    {
        if (\class_exists(Clock::class)) {
            Clock::get(); // or there would be no value to go back to
        }
        $this->statics = Statics::of(self::SWITCHES);
        // Carbon 3 has its clock for tests in one.
        $objects = \array_filter($this->statics->objects(), static fn (object $object): bool
            => \str_starts_with($object::class, 'Carbon\\'));
        $router = $container?->get('router', ContainerInterface::NULL_ON_INVALID_REFERENCE);
        if ($router instanceof RequestContextAwareInterface) {
            $objects[] = $router->getContext();
        }
        $this->objects = Snapshot::of(...\array_values($objects));
        $this->dispatcher = self::inner($dispatcher);
        $this->listeners = Snapshot::of(...($this->dispatcher === null ? [] : [$this->dispatcher]));
        $this->count = $this->countListeners();
    }

    public function restore(): void
    {
        $this->statics->restore();
        $this->objects->restore();
        // The dispatcher has sorted them as they were asked for, which it should not do anew.
        if ($this->countListeners() !== $this->count) {
            $this->listeners->restore();
        }
    }

    /** Symfony's own dispatcher, which its profiler wraps in development. */
    private static function inner(?EventDispatcherInterface $dispatcher): ?EventDispatcher
    {
        if ($dispatcher instanceof TraceableEventDispatcher) {
            $dispatcher = self::property($dispatcher, TraceableEventDispatcher::class, 'dispatcher');
        }

        return $dispatcher instanceof EventDispatcher ? $dispatcher : null;
    }

    /** Counts them without making services that were not asked for. */
    private function countListeners(): int
    {
        if ($this->dispatcher === null) {
            return 0;
        }
        $count = 0;
        foreach (self::property($this->dispatcher, EventDispatcher::class, 'listeners') as $byPriority) {
            foreach ($byPriority as $listeners) {
                $count += \count($listeners);
            }
        }

        return $count;
    }

    /** @param class-string $class that has it */
    private static function property(object $object, string $class, string $name): mixed
    {
        return \Closure::bind(static fn (): mixed => $object->$name, null, $class)();
    }
}
