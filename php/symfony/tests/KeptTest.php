<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Symfony\Kept;
use Pronghorn\Symfony\Twig\Globals;
use Symfony\Component\Config\Loader\LoaderInterface;
use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\EventDispatcher\Debug\TraceableEventDispatcher;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\Routing\RequestContext;
use Symfony\Component\Routing\Route;
use Symfony\Component\Routing\RouteCollection;
use Symfony\Component\Routing\Router;
use Symfony\Component\Routing\RouterInterface;
use Symfony\Component\Stopwatch\Stopwatch;
use Twig\Environment;
use Twig\Loader\ArrayLoader;

final class KeptTest extends TestCase
{
    protected function tearDown(): void
    {
        Request::setTrustedProxies([], -1);
        Request::setTrustedHosts([]);
    }

    public function testStaticPropertiesGoBack(): void
    {
        Request::setTrustedProxies(['10.0.0.1'], Request::HEADER_X_FORWARDED_FOR);
        $kept = new Kept(null, null);
        Request::setTrustedProxies(['0.0.0.0/0'], Request::HEADER_X_FORWARDED_HOST);
        Request::setTrustedHosts(['a']);
        Request::setFactory(static fn (): Request => new Request());
        $kept->restore();
        self::assertSame(['10.0.0.1'], Request::getTrustedProxies());
        self::assertSame(Request::HEADER_X_FORWARDED_FOR, Request::getTrustedHeaderSet());
        self::assertSame([], Request::getTrustedHosts());
    }

    public function testRequestsThatWereNotPoppedAreGone(): void
    {
        $stack = new RequestStack();
        $container = new Container();
        $container->set('request_stack', $stack);
        $kept = new Kept($container, null);
        self::assertFalse($kept->restore());
        $stack->push(Request::create('/of-a-visitor'));
        self::assertTrue($kept->restore());
        self::assertNull($stack->getCurrentRequest());
        $stack->push($next = Request::create('/next'));
        self::assertSame($next, method_exists($stack, 'getMainRequest') ? $stack->getMainRequest() : $next);
    }

    public function testSaysWhetherAnythingHadChanged(): void
    {
        $router = $this->createStub(RouterInterface::class);
        $router->method('getContext')->willReturn($context = new RequestContext());
        $container = new Container();
        $container->set('router', $router);
        $dispatcher = new EventDispatcher();
        $kept = new Kept($container, $dispatcher);
        $changes = [
            static fn () => Request::setTrustedProxies(['10.0.0.1'], Request::HEADER_X_FORWARDED_FOR),
            static fn () => $context->setHost('visitor.example'),
            static fn () => $dispatcher->addListener('event', static fn () => null),
        ];
        foreach ($changes as $change) {
            self::assertFalse($kept->restore());
            $change();
            self::assertTrue($kept->restore());
        }
        self::assertFalse($kept->restore());
    }

    public function testARouterThatShowsCopiesOfItsContextHasNotChanged(): void
    {
        $router = $this->createStub(RouterInterface::class);
        $router->method('getContext')->willReturnCallback(static fn (): RequestContext => new RequestContext());
        $container = new Container();
        $container->set('router', $router);
        $kept = new Kept($container, null);
        self::assertFalse($kept->restore());
    }

    public function testParametersOfTheRouterGoBack(): void
    {
        $context = new RequestContext();
        $context->setParameter('shop', 'main');
        $router = $this->createStub(RouterInterface::class);
        $router->method('getContext')->willReturn($context);
        $container = new Container();
        $container->set('router', $router);
        $kept = new Kept($container, null);
        $context->setParameter('tenant', 'a visitor');
        $context->setHost('visitor.example');
        $kept->restore();
        self::assertSame(['shop' => 'main'], $context->getParameters());
        self::assertSame('localhost', $context->getHost());
    }

    public function testTheContextOfTheRouterGoesBack(): void
    {
        $routes = new RouteCollection();
        $routes->add('page', new Route('/page'));
        $loader = $this->createStub(LoaderInterface::class);
        $loader->method('load')->willReturn($routes);
        $router = new Router($loader, '', [], new RequestContext('/shop'));
        $container = new Container();
        $container->set('router', $router);
        $kept = new Kept($container, null);
        $evil = new RequestContext('/evil', 'GET', 'evil.example');
        foreach ([$router, $router->getGenerator(), $router->getMatcher()] as $aware) {
            $aware->setContext($evil);
            $kept->restore();
            self::assertSame('/shop', $router->getContext()->getBaseUrl());
            self::assertSame('/shop/page', $router->generate('page'));
            self::assertSame($router->getContext(), $router->getMatcher()->getContext());
        }
    }

    /** @dataProvider dispatchers */
    public function testListenersOfARequestAreGoneAndOthersAreMadeOnce(bool $isTraced): void
    {
        $made = 0;
        $service = null;
        $dispatcher = new EventDispatcher();
        $dispatcher->addListener('event', [static function () use (&$made, &$service): object {
            return $service ??= new class ($made) {
                public function __construct(int &$made)
                {
                    $made++;
                }

                public function __invoke(): void
                {
                }
            };
        }]);
        $outer = $isTraced ? new TraceableEventDispatcher($dispatcher, new Stopwatch()) : $dispatcher;
        $kept = new Kept(null, $outer);
        for ($request = 1; $request <= 3; $request++) {
            $outer->dispatch(new \stdClass(), 'event');
            $kept->restore();
        }
        self::assertSame(1, $made);
        $outer->addListener('event', static fn () => self::fail('of another request'));
        $outer->addListener('other', static fn () => self::fail('of another request'));
        $kept->restore();
        $outer->dispatch(new \stdClass(), 'event');
        $outer->dispatch(new \stdClass(), 'other');
        self::assertCount(1, $dispatcher->getListeners('event'));
    }

    /** @dataProvider dispatchers */
    public function testAListenerThatTookThePlaceOfAnotherIsGone(bool $isTraced): void
    {
        $called = [];
        $listener = static function (string $name) use (&$called): object {
            return new class ($name, $called) {
                /** @param list<string> $called */
                public function __construct(private readonly string $name, private array &$called)
                {
                }

                public function on(): void
                {
                    $this->called[] = $this->name;
                }
            };
        };
        $service = $listener('lazy');
        $dispatcher = new EventDispatcher();
        $dispatcher->addListener('event', [static fn (): object => $service, 'on']);
        $dispatcher->addListener('event', $plain = [$listener('plain'), 'on'], -1);
        $outer = $isTraced ? new TraceableEventDispatcher($dispatcher, new Stopwatch()) : $dispatcher;
        $kept = new Kept(null, $outer);
        for ($request = 1; $request <= 2; $request++) {
            foreach ([[[$service, 'on'], 0], [$plain, -1], [$plain, 0]] as [$removed, $priority]) {
                $outer->removeListener('event', $removed);
                $outer->addListener('event', [$listener('of a visitor'), 'on'], $priority);
                $kept->restore();
                $called = [];
                $outer->dispatch(new \stdClass(), 'event');
                self::assertSame(['lazy', 'plain'], $called);
                $kept->restore();
            }
        }
    }

    /** @return array<string, array{bool}> */
    public static function dispatchers(): array
    {
        $all = ['plain' => [false]];

        return \class_exists(Stopwatch::class) ? $all + ['in development' => [true]] : $all;
    }

    public function testGlobalsOfTwigGoBack(): void
    {
        $twig = new Environment(new ArrayLoader(['page' => '{{ name }} {{ added }}']));
        $twig->addGlobal('name', 'nobody');
        $globals = new Globals($twig);
        for ($request = 1; $request <= 2; $request++) {
            $twig->addGlobal('added', 'by a request');
            self::assertSame('nobody by a request', $twig->render('page'));
            $twig->addGlobal('name', 'a visitor');
            $globals->reset();
            self::assertSame('nobody ', $twig->render('page'));
        }
    }
}
