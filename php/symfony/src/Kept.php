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
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\Routing\RequestContext;
use Symfony\Component\Routing\RequestContextAwareInterface;

/**
 * Takes back what Symfony keeps of a request and no reset of a service knows: static properties
 * such as trusted proxies, parameters of the router, listeners that a request has added, and
 * requests that were pushed on the stack and not popped.
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
    /** Of objects in these. */
    private readonly Snapshot $inStatics;
    private readonly Snapshot $objects;
    private readonly ?RequestContextAwareInterface $router;
    private readonly ?RequestContext $context;
    private readonly ?EventDispatcher $dispatcher;
    private readonly Snapshot $dispatched;
    /** @var array<string, array<int, array<mixed>>> of the boot, by event and priority */
    private readonly array $booted;
    /** @var array<string, array<int, array<mixed>>> the same ones, as they were made by now */
    private array $listeners;

    /** The kernel has booted. */
    public function __construct(?ContainerInterface $container, ?EventDispatcherInterface $dispatcher)
    {
        if (\class_exists(Clock::class)) {
            Clock::get(); // or there would be no value to go back to
        }
        $this->statics = Statics::of(self::SWITCHES);
        // Carbon 3 has its clock for tests in one.
        $objects = \array_filter($this->statics->objects(), static fn (object $object): bool
            => \str_starts_with($object::class, 'Carbon\\') || Snapshot::contents($object) !== null);
        $this->inStatics = Snapshot::of(...\array_values($objects));
        $requests = $container?->get('request_stack', ContainerInterface::NULL_ON_INVALID_REFERENCE);
        $router = $container?->get('router', ContainerInterface::NULL_ON_INVALID_REFERENCE);
        $this->router = $router instanceof RequestContextAwareInterface ? $router : null;
        $this->context = $this->router?->getContext();
        $requests = $requests instanceof RequestStack ? $requests : null;
        $this->objects = Snapshot::of(...\array_filter([$this->context, $requests]));
        $this->dispatcher = self::inner($dispatcher);
        $this->dispatched = Snapshot::of(...($this->dispatcher === null ? [] : [$this->dispatcher]));
        $this->listeners = $this->booted = $this->registered();
    }

    /** @return bool whether anything had changed */
    public function restore(): bool
    {
        $hasChanged = $this->switches()();
        $hasChanged = $this->objects->restore() || $hasChanged;
        $hasChanged = $this->restoreContext() || $hasChanged;
        // The dispatcher has sorted them as they were asked for, which it should not do anew.
        $registered = $this->registered();
        if (self::areSame($this->listeners, $registered)) {
            $this->listeners = $registered;
        } else {
            $this->dispatched->restore();
            $this->listeners = $this->booted;
            $hasChanged = true;
        }

        return $hasChanged;
    }

    private function restoreContext(): bool
    {
        if ($this->router === null || $this->context === null) {
            return false;
        }
        $isOther = $this->router->getContext() !== $this->context;
        // It gives it to its matcher and generator, too.
        $this->router->setContext($this->context);

        // A router of the application's own may show a copy each time.
        return $isOther && $this->router->getContext() === $this->context;
    }

    /**
     * For static properties alone, when the kernel goes.
     *
     * @return \Closure(): bool that takes them back, and says whether anything had changed
     */
    public function switches(): \Closure
    {
        [$statics, $inStatics] = [$this->statics, $this->inStatics];

        return static function () use ($statics, $inStatics): bool {
            $hasChanged = $statics->restore();

            return $inStatics->restore() || $hasChanged;
        };
    }

    /** Symfony's own dispatcher, which its profiler wraps in development. */
    private static function inner(?EventDispatcherInterface $dispatcher): ?EventDispatcher
    {
        if ($dispatcher instanceof TraceableEventDispatcher) {
            $dispatcher = self::property($dispatcher, TraceableEventDispatcher::class, 'dispatcher');
        }

        return $dispatcher instanceof EventDispatcher ? $dispatcher : null;
    }

    /** @return array<string, array<int, array<mixed>>> by event and priority */
    private function registered(): array
    {
        return $this->dispatcher === null
            ? []
            : self::property($this->dispatcher, EventDispatcher::class, 'listeners');
    }

    /**
     * The order of events and priorities may differ, and keys: a dispatcher sorts them, and one
     * that traces takes each listener out and in again.
     *
     * @param array<string, array<int, array<mixed>>> $kept
     * @param array<string, array<int, array<mixed>>> $found
     */
    private static function areSame(array $kept, array $found): bool
    {
        if ($kept === $found) {
            return true;
        }
        [$kept, $found] = [self::flat($kept), self::flat($found)];
        foreach ($kept as $place => $listener) {
            $other = $found[$place] ?? null;
            if ($listener !== $other && !self::isMade($listener, $other)) {
                return false;
            }
        }

        return \count($kept) === \count($found);
    }

    /**
     * @param array<string, array<int, array<mixed>>> $registered
     * @return array<string, mixed>
     */
    private static function flat(array $registered): array
    {
        $flat = [];
        foreach ($registered as $event => $byPriority) {
            foreach ($byPriority as $priority => $listeners) {
                foreach (\array_values($listeners) as $place => $listener) {
                    $flat["$priority $place $event"] = $listener;
                }
            }
        }

        return $flat;
    }

    /** Whether this is the listener that the container makes when it is asked for. */
    private static function isMade(mixed $lazy, mixed $made): bool
    {
        return \is_array($lazy) && \is_array($made)
            && ($lazy[0] ?? null) instanceof \Closure && !$made[0] instanceof \Closure
            && ($lazy[1] ?? '__invoke') === ($made[1] ?? null)
            && $lazy[0]() === $made[0];
    }

    /** @param class-string $class that has it */
    private static function property(object $object, string $class, string $name): mixed
    {
        return \Closure::bind(static fn (): mixed => $object->$name, null, $class)();
    }
}
