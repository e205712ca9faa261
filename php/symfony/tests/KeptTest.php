<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Symfony\Kept;
use Pronghorn\Symfony\Twig\Globals;
use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\EventDispatcher\Debug\TraceableEventDispatcher;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\Routing\RequestContext;
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

    /** @dataProvider dispatchers */
    public function testListenersOfARequestAreGoneAndOthersAreMadeOnce(bool $isTraced): void
    {
        $made = 0;
        $dispatcher = new EventDispatcher();
        $dispatcher->addListener('event', [static function () use (&$made): object {
            $made++;

            return new class {
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
