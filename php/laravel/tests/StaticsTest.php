<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Carbon\CarbonImmutable;
use Carbon\FactoryImmutable;
use Illuminate\Auth\Middleware\Authenticate;
use Illuminate\Auth\Middleware\RedirectIfAuthenticated;
use Illuminate\Auth\Notifications\ResetPassword;
use Illuminate\Auth\Notifications\VerifyEmail;
use Illuminate\Config\Repository;
use Illuminate\Console\Application as Artisan;
use Illuminate\Container\Container;
use Illuminate\Cookie\Middleware\EncryptCookies;
use Illuminate\Database\Eloquent\Builder;
use Illuminate\Database\Eloquent\Factories\Factory;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Database\Eloquent\Relations\Relation;
use Illuminate\Database\Query\Builder as Query;
use Illuminate\Database\Schema\Builder as Schema;
use Illuminate\Events\Dispatcher;
use Illuminate\Foundation\Application;
use Illuminate\Foundation\Http\Middleware\ConvertEmptyStringsToNull;
use Illuminate\Foundation\Http\Middleware\TrimStrings;
use Illuminate\Http\JsonResponse;
use Illuminate\Http\Middleware\TrustHosts;
use Illuminate\Http\Middleware\TrustProxies;
use Illuminate\Http\Request;
use Illuminate\Http\Resources\Json\JsonResource;
use Illuminate\Mail\Mailable;
use Illuminate\Pagination\Paginator;
use Illuminate\Queue\Queue;
use Illuminate\Queue\Worker;
use Illuminate\Routing\Middleware\ThrottleRequests;
use Illuminate\Routing\Route;
use Illuminate\Support\Arr;
use Illuminate\Support\Carbon;
use Illuminate\Support\Collection;
use Illuminate\Support\DateFactory;
use Illuminate\Support\EncodedHtmlString;
use Illuminate\Support\Env;
use Illuminate\Support\Facades\Facade;
use Illuminate\Support\HtmlString;
use Illuminate\Support\Lottery;
use Illuminate\Support\Number;
use Illuminate\Support\Sleep;
use Illuminate\Support\Str;
use Illuminate\Support\Stringable;
use Illuminate\Validation\Rules\Password;
use Illuminate\View\Component;
use PHPUnit\Framework\TestCase;
use Pronghorn\Laravel\Sandbox;
use Ramsey\Uuid\Uuid;
use Symfony\Component\HttpFoundation\Request as Base;
use Symfony\Component\VarDumper\VarDumper;

/** Laravel's static properties, each as a request changes it. */
final class StaticsTest extends TestCase
{
    private Application $app;

    protected function setUp(): void
    {
        $this->app = new Application('/nowhere');
        $this->app->instance('config', new Repository([]));
        $this->app->instance('events', new Dispatcher($this->app));
        Facade::setFacadeApplication($this->app);
        Model::setEventDispatcher($this->app->make('events'));
        Model::clearBootedModels();
    }

    protected function tearDown(): void
    {
        Facade::setFacadeApplication(null);
        Facade::clearResolvedInstances();
        Model::unsetEventDispatcher();
        Container::setInstance(null);
    }

    /**
     * @dataProvider switches
     * @param \Closure(): mixed $change
     */
    public function testASwitchOfARequestIsBack(string $class, \Closure $change): void
    {
        $sandbox = new Sandbox($this->app);
        $before = self::look($class);
        try {
            $change();
        } catch (\Throwable $lacking) {
            self::markTestSkipped("Not with this Laravel: {$lacking->getMessage()}");
        }
        self::assertNotSame($before, self::look($class), 'the request has changed it');
        $sandbox->restore();
        self::assertSame($before, self::look($class));
    }

    /** @return iterable<string, array{class-string, \Closure(): mixed}> */
    public static function switches(): iterable
    {
        $nothing = static fn (): mixed => null;
        $all = [
            Model::class => [
                'unguard' => static fn () => Model::unguard(),
                'preventLazyLoading' => static fn () => Model::preventLazyLoading(),
                'preventSilentlyDiscardingAttributes' => static fn () => Model::preventSilentlyDiscardingAttributes(),
                'preventAccessingMissingAttributes' => static fn () => Model::preventAccessingMissingAttributes(),
                'handleLazyLoadingViolationUsing' => static fn () => Model::handleLazyLoadingViolationUsing($nothing),
                'unsetEventDispatcher' => static fn () => Model::unsetEventDispatcher(),
                'setEventDispatcher' => static fn () => Model::setEventDispatcher(new Dispatcher()),
                'addGlobalScope' => static fn () => Row::addGlobalScope('of a request', $nothing),
            ],
            Row::class => [
                'boot' => static fn () => new Row(),
            ],
            Relation::class => [
                'morphMap' => static fn () => Relation::morphMap(['row' => Row::class]),
                'requireMorphMap' => static fn () => Relation::requireMorphMap(),
                'noConstraints' => static fn () => Relation::macro('of', $nothing),
            ],
            Carbon::class => [
                'setTestNow' => static fn () => Carbon::setTestNow('2020-01-01'),
                'macro' => static fn () => Carbon::macro('ofARequest', $nothing),
                'setLocale' => static fn () => Carbon::setLocale('de'),
                'setWeekStartsAt' => static fn () => Carbon::setWeekStartsAt(3),
                'useMonthsOverflow' => static fn () => Carbon::useMonthsOverflow(false),
                'setToStringFormat' => static fn () => Carbon::setToStringFormat('Y'),
                'serializeUsing' => static fn () => Carbon::serializeUsing($nothing),
            ],
            CarbonImmutable::class => ['setTestNow' => static fn () => CarbonImmutable::setTestNow('2020-01-01')],
            DateFactory::class => ['use' => static fn () => DateFactory::useClass(CarbonImmutable::class)],
            Str::class => [
                'createRandomStringsUsing' => static fn () => Str::createRandomStringsUsing($nothing),
                'createUuidsUsing' => static fn () => Str::createUuidsUsing($nothing),
                'createUlidsUsing' => static fn () => Str::createUlidsUsing($nothing),
                'macro' => static fn () => Str::macro('ofARequest', $nothing),
                'snake' => static fn () => Str::snake('WhatAVisitorHasWritten'),
            ],
            Number::class => [
                'useLocale' => static fn () => Number::useLocale('de'),
                'useCurrency' => static fn () => Number::useCurrency('EUR'),
            ],
            JsonResource::class => ['withoutWrapping' => static fn () => JsonResource::withoutWrapping()],
            Paginator::class => [
                'useBootstrap' => static fn () => Paginator::useBootstrap(),
                'currentPageResolver' => static fn () => Paginator::currentPageResolver($nothing),
            ],
            Password::class => ['defaults' => static fn () => Password::defaults($nothing)],
            Queue::class => ['createPayloadUsing' => static fn () => Queue::createPayloadUsing($nothing)],
            Worker::class => ['popUsing' => static fn () => Worker::popUsing('a', $nothing)],
            Schema::class => ['defaultStringLength' => static fn () => Schema::defaultStringLength(9)],
            Factory::class => ['useNamespace' => static fn () => Factory::useNamespace('Of')],
            Component::class => ['resolve' => static fn () => Component::resolveComponentsUsing($nothing)],
            Artisan::class => ['starting' => static fn () => Artisan::starting($nothing)],
            Env::class => ['disablePutenv' => static fn () => Env::disablePutenv()],
            Sleep::class => ['fake' => static fn () => Sleep::fake()],
            Lottery::class => ['alwaysWin' => static fn () => Lottery::alwaysWin()],
            EncodedHtmlString::class => ['encodeUsing' => static fn () => EncodedHtmlString::encodeUsing($nothing)],
            ResetPassword::class => ['createUrlUsing' => static fn () => ResetPassword::createUrlUsing($nothing)],
            VerifyEmail::class => ['toMailUsing' => static fn () => VerifyEmail::toMailUsing($nothing)],
            Mailable::class => ['buildViewDataUsing' => static fn () => Mailable::buildViewDataUsing($nothing)],
            TrimStrings::class => ['skipWhen' => static fn () => TrimStrings::skipWhen($nothing)],
            ConvertEmptyStringsToNull::class => [
                'skipWhen' => static fn () => ConvertEmptyStringsToNull::skipWhen($nothing),
            ],
            TrustProxies::class => ['at' => static fn () => TrustProxies::at('*')],
            TrustHosts::class => ['at' => static fn () => TrustHosts::at(['a'])],
            EncryptCookies::class => ['except' => static fn () => EncryptCookies::except('a')],
            Authenticate::class => ['redirectUsing' => static fn () => Authenticate::redirectUsing($nothing)],
            RedirectIfAuthenticated::class => [
                'redirectUsing' => static fn () => RedirectIfAuthenticated::redirectUsing($nothing),
            ],
            ThrottleRequests::class => ['hash' => static fn () => ThrottleRequests::shouldHashKeys(false)],
            Base::class => [
                'setTrustedProxies' => static fn () => Base::setTrustedProxies(['10.0.0.1'], 1),
                'setTrustedHosts' => static fn () => Base::setTrustedHosts(['a']),
                'method override' => static fn () => Base::enableHttpMethodParameterOverride(),
                'setFactory' => static fn () => Base::setFactory($nothing),
                'getFormat' => static fn () => (new Base())->setFormat('mine', 'text/mine'),
            ],
            Uuid::class => ['setFactory' => static fn () => Uuid::setFactory(clone Uuid::getFactory())],
            VarDumper::class => ['setHandler' => static fn () => VarDumper::setHandler($nothing)],
        ];
        foreach (\array_filter($all, 'class_exists', \ARRAY_FILTER_USE_KEY) as $class => $changes) {
            foreach ($changes as $name => $change) {
                yield "$class::$name" => [$class, $change];
            }
        }
        $macroable = [
            Arr::class, Builder::class, Collection::class, HtmlString::class, JsonResponse::class, Query::class,
            Request::class, Route::class, Stringable::class,
        ];
        foreach ($macroable as $class) {
            yield "$class::macro" => [$class, static fn () => $class::macro('ofARequest', $nothing)];
        }
    }

    public function testAModelHasItsListenersAndScopesInEachRequest(): void
    {
        $sandbox = new Sandbox($this->app);
        for ($request = 1; $request <= 3; $request++) {
            $row = new Row();
            self::assertTrue($this->app->make('events')->hasListeners('eloquent.saving: ' . Row::class));
            self::assertArrayHasKey('own', $row->getGlobalScopes());
            $sandbox->restore();
        }
    }

    public function testClassesMayKeepTheirs(): void
    {
        $sandbox = new Sandbox($this->app, keepStatics: ['Illuminate\\Support\\Str']);
        Str::snake('KeptForAll');
        Model::unguard();
        $sandbox->restore();
        self::assertNotSame([], self::look(Str::class)['snakeCache']);
        self::assertFalse(Model::isUnguarded());
        Str::flushCache();
    }

    /**
     * Carbon 3 has in an object what Carbon 2 has in static properties.
     *
     * @return array<string, mixed>
     */
    private static function look(string $class): array
    {
        $values = [];
        foreach ((new \ReflectionClass($class))->getProperties(\ReflectionProperty::IS_STATIC) as $property) {
            $values[$property->name] = $property->isInitialized() ? $property->getValue() : null;
        }
        $hasFactory = \str_contains($class, 'Carbon') && \method_exists(FactoryImmutable::class, 'getDefaultInstance');

        return $hasFactory ? $values + ['factory' => (array) FactoryImmutable::getDefaultInstance()] : $values;
    }
}
