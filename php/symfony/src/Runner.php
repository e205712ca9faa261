<?php

declare(strict_types=1);

namespace Pronghorn\Symfony;

use Pronghorn\HttpFoundation\Dumps;
use Pronghorn\HttpFoundation\Foundation;
use Pronghorn\HttpFoundation\Renewal;
use Pronghorn\Job;
use Pronghorn\Request as Asked;
use Pronghorn\Response as Reply;
use Pronghorn\Symfony\Messenger\JobRunner;
use Pronghorn\Worker;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\EventDispatcher\EventDispatcherInterface;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Event\ExceptionEvent;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\EventListener\AbstractSessionListener;
use Symfony\Component\HttpKernel\EventListener\StreamedResponseListener;
use Symfony\Component\HttpKernel\Exception\HttpExceptionInterface;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\Kernel;
use Symfony\Component\HttpKernel\KernelEvents;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\RebootableInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Contracts\Service\ResetInterface;

/**
 * Answers requests with a kernel that is booted once.
 *
 * After each reply the kernel terminates, and resets all services that are tagged for it. A kernel
 * whose services keep more than that is booted anew by choice: after an exception that was no HTTP
 * error, or after so many requests. It is in any case when an `exit` has ended a request in it.
 */
final class Runner implements RunnerInterface
{
    /** The service that runs messages of messenger; public, because a worker asks for it. */
    public const JOBS = 'pronghorn.jobs';
    /** The service that resets globals of Twig; public, because it has to be made at the boot. */
    public const TWIG = 'pronghorn.twig';

    public const NEVER = 'never';
    /** After an exception that the application did not mean as an answer. */
    public const ON_EXCEPTION = 'exception';

    /** The version from which on Symfony sets PHP up for each session. */
    private const OWN_SESSIONS = 6;

    private readonly Connections $connections;
    private readonly Renewal $renewal;
    private readonly SessionSettings $sessions;
    private ?Kept $kept = null;
    private int $calls = 0;
    private bool $isDoubtful = false;
    /** The kernel has a call under way, or one that will never end: an `exit` skips even `finally`. */
    private bool $isInside = false;

    /** @param self::NEVER|self::ON_EXCEPTION|int $reboot when the kernel boots anew; a number counts calls */
    public function __construct(
        private readonly HttpKernelInterface $kernel,
        private readonly string|int $reboot = self::NEVER,
    ) {
        $isKnown = \is_int($reboot) ? $reboot > 0 : \in_array($reboot, [self::NEVER, self::ON_EXCEPTION], true);
        if (!$isKnown) {
            throw new \InvalidArgumentException(
                "The option `reboot` is `$reboot`: `never`, `exception` or a number of requests is meant."
            );
        }
        if ($reboot !== self::NEVER && !$kernel instanceof RebootableInterface) {
            throw new \InvalidArgumentException(
                'The option `reboot` is for a kernel that can be booted anew, and ' . $kernel::class
                    . ' is no RebootableInterface.'
            );
        }
        $this->connections = new Connections();
        $this->sessions = new SessionSettings();
        $this->renewal = new Renewal($this->renew(...), $this->look(...));
    }

    /** Whether this process is a worker of Pronghorn. */
    public static function hasServer(): bool
    {
        return \getenv('PRONGHORN_PIPES') !== false || \getenv('PRONGHORN_ZYGOTE') !== false;
    }

    public function run(): int
    {
        $this->boot();
        $this->kept ??= new Kept(null, null);
        $worker = (new Worker())->onRequest($this->answer(...));
        if ($this->jobs() !== null) {
            $worker->onJob($this->work(...));
        }
        $worker->beforeFork($this->beforeFork(...));
        $worker->run();

        return 0;
    }

    /** Closes connections that the boot, or a page of `warmup`, has opened. */
    private function beforeFork(): void
    {
        $this->renewal->finish();
        $this->connections->close($this->container());
        $this->dispatcher()?->dispatch(new BeforeFork());
    }

    /** There is one where the application has the bundle and messenger. */
    private function jobs(): ?JobRunner
    {
        $jobs = $this->container()?->get(self::JOBS, ContainerInterface::NULL_ON_INVALID_REFERENCE);

        return $jobs instanceof JobRunner ? $jobs : null;
    }

    /** A kernel that boots anew has another one. */
    private function container(): ?ContainerInterface
    {
        return $this->kernel instanceof KernelInterface ? $this->kernel->getContainer() : null;
    }

    private function dispatcher(): ?EventDispatcherInterface
    {
        $dispatcher = $this->container()?->get('event_dispatcher', ContainerInterface::NULL_ON_INVALID_REFERENCE);

        return $dispatcher instanceof EventDispatcherInterface ? $dispatcher : null;
    }

    private function answer(Asked $asked): Reply
    {
        $request = Foundation::request($asked);

        return Foundation::answer($request, $this->handle(...), $this->terminate(...), $this->renewal);
    }

    private function work(Job $job): void
    {
        $this->renewal->begin();
        $this->inside(fn () => $this->jobs()?->run($job));
    }

    private function handle(Request $request): Response
    {
        return $this->inside(fn (): Response => $this->kernel->handle($request));
    }

    /**
     * @template T
     * @param \Closure(): T $function
     * @return T
     */
    private function inside(\Closure $function): mixed
    {
        $container = $this->container();
        $this->connections->revive($container);
        $this->sessions->apply();
        $this->isInside = true;
        try {
            return $function();
        } finally {
            $this->sessions->keep($container);
            $this->isInside = false;
        }
    }

    private function terminate(Request $request, Response $response): void
    {
        if ($this->kernel instanceof TerminableInterface) {
            $this->kernel->terminate($request, $response);
        }
    }

    private function renew(): void
    {
        $this->calls++;
        Renewal::settle(function (): bool {
            $this->kept?->restore();
            $this->connections->settle($this->container());

            return false;
        });
        $this->isDoubtful && $this->connections->doubt();
        if ($this->isInside || $this->isDue()) {
            $this->reboot();
        } elseif ($this->kernel instanceof KernelInterface) {
            Renewal::settle($this->bootServices(...));
        }
        $this->isDoubtful = $this->isInside = false;
        $this->look();
    }

    /** False: as often as it is done, it is the same. */
    private function bootServices(): bool
    {
        // It resets its services now instead of before the next request.
        $this->kernel->boot();
        // What that has freed may have destructors, which set what was reset before.
        $this->reset();
        // Services set the router's locale when they are reset.
        $this->kept?->restore();

        return false;
    }

    /** Takes back what came since the kernel was made ready. */
    private function look(): void
    {
        Renewal::settle(function (): bool {
            $hasChanged = $this->kept?->restore() ?? false;
            $this->connections->settle($this->container());
            if ($hasChanged) {
                $this->reset();
                $this->kept?->restore();
            }

            return $hasChanged;
        });
    }

    private function reset(): void
    {
        $services = $this->container()?->get('services_resetter', ContainerInterface::NULL_ON_INVALID_REFERENCE);
        if ($services instanceof ResetInterface) {
            $services->reset();
        }
    }

    private function isDue(): bool
    {
        return match ($this->reboot) {
            self::NEVER => false,
            self::ON_EXCEPTION => $this->isDoubtful,
            default => $this->calls >= $this->reboot,
        };
    }

    private function reboot(): void
    {
        if (!$this->kernel instanceof RebootableInterface) {
            throw new \LogicException(
                'A call has exited in ' . $this->kernel::class . ', which can\'t be booted anew.'
            );
        }
        $this->calls = 0;
        $this->sessions->forget();
        $this->shutDown();
        Dumps::forget();
        $this->kernel->reboot(null);
        $this->listen();
    }

    /** Before another one boots: what destructors of its services set must not be part of that boot. */
    private function shutDown(): void
    {
        $switches = $this->kept?->switches();
        if ($switches === null || !$this->kernel instanceof KernelInterface) {
            $this->kept = null;

            return;
        }
        // Both are freed below, and not in the middle of the kernel's own shutdown: destructors may
        // cut off what they run in.
        $freed = [$this->kept, $this->container()];
        $this->kept = null;
        $this->kernel->shutdown();
        Renewal::settle(static function () use (&$freed, $switches): bool {
            // It holds the dispatcher, and so what listens.
            $freed = null;
            // Services and their container refer to one another.
            \gc_collect_cycles();

            return $switches();
        });
    }

    private function boot(): void
    {
        if ($this->kernel instanceof KernelInterface) {
            $this->kernel->boot();
            $this->listen();
            $this->setUpSessions();
        }
    }

    private function listen(): void
    {
        // A bundle may have given VarDumper a handler of the kernel that has booted.
        Dumps::listen();
        $dispatcher = $this->dispatcher();
        if ($dispatcher === null) {
            return;
        }
        // Symfony 5.4 echoes a streamed response while the kernel still handles the request; here
        // it is sent as it comes.
        foreach ($dispatcher->getListeners(KernelEvents::RESPONSE) as $listener) {
            if (\is_array($listener) && $listener[0] instanceof StreamedResponseListener) {
                $dispatcher->removeListener(KernelEvents::RESPONSE, $listener);
            }
        }
        $dispatcher->addListener(KernelEvents::EXCEPTION, function (ExceptionEvent $event): void {
            $this->isDoubtful = $this->isDoubtful || !$event->getThrowable() instanceof HttpExceptionInterface;
        });
        $this->container()?->get(self::TWIG, ContainerInterface::NULL_ON_INVALID_REFERENCE);
        $this->kept = new Kept($this->container(), $dispatcher);
    }

    /**
     * Symfony 5.4 sets PHP up for sessions once, in the request that uses the first one. As part of
     * the boot it holds for all of them: PHP's own state goes back there.
     */
    private function setUpSessions(): void
    {
        if (Kernel::MAJOR_VERSION >= self::OWN_SESSIONS) {
            return;
        }
        $event = new RequestEvent($this->kernel, new Request(), HttpKernelInterface::MAIN_REQUEST);
        foreach ($this->dispatcher()?->getListeners(KernelEvents::REQUEST) ?? [] as $listener) {
            if (\is_array($listener) && $listener[0] instanceof AbstractSessionListener) {
                $listener($event);
                $event->getRequest()->hasSession() && $event->getRequest()->getSession();
            }
        }
    }
}
