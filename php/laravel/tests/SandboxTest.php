<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Config\Repository;
use Illuminate\Database\DatabaseManager;
use Illuminate\Database\SQLiteConnection;
use Illuminate\Foundation\Application;
use Illuminate\Support\Facades\Config;
use Illuminate\Support\Facades\Facade;
use Laravel\SerializableClosure\SerializableClosure;
use PHPUnit\Framework\TestCase;
use Pronghorn\Laravel\Sandbox;

final class SandboxTest extends TestCase
{
    private Application $app;

    protected function setUp(): void
    {
        $this->app = new Application('/nowhere');
        $this->app->instance('config', new Repository(['app' => ['locale' => 'en']]));
        Facade::setFacadeApplication($this->app);
    }

    protected function tearDown(): void
    {
        Facade::setFacadeApplication(null);
        Facade::clearResolvedInstances();
    }

    public function testWhatARequestLeftIsGone(): void
    {
        $this->app->singleton('lazy', fn (): \ArrayObject => new \ArrayObject());
        $sandbox = new Sandbox($this->app);

        Config::set('app.locale', 'fr');
        $this->app->make('lazy')['user'] = 'ada';
        $this->app->bind('more', fn (): string => 'of a request');
        $this->app->instance('user', 'ada');
        $sandbox->restore();

        self::assertSame('en', Config::get('app.locale'));
        self::assertCount(0, $this->app->make('lazy'));
        self::assertFalse($this->app->bound('more'));
        self::assertFalse($this->app->bound('user'));
    }

    public function testClosuresAreReadInEachRequest(): void
    {
        // Laravel 8 knows nothing of PHP 8.2.
        $reporting = \error_reporting(\E_ALL & ~\E_DEPRECATED);
        $sandbox = new Sandbox($this->app);
        for ($request = 1; $request <= 3; $request++) {
            $kept = \serialize(new SerializableClosure(static fn (): int => $request));
            self::assertSame($request, \unserialize($kept)->getClosure()());
            $sandbox->restore();
        }
        \error_reporting($reporting);
    }

    public function testServicesOfOthersGoBackIfTheyAreNamed(): void
    {
        $cart = new class {
            /** @var list<string> */
            public array $goods = [];
        };
        $other = clone $cart;
        $this->app->instance('cart', $cart);
        $this->app->instance('other', $other);
        $sandbox = new Sandbox($this->app, ['cart']);

        $cart->goods[] = $other->goods[] = 'a thing';
        $sandbox->restore();

        self::assertSame([[], ['a thing']], [$cart->goods, $other->goods]);
    }

    /** @dataProvider connections */
    public function testAnOpenTransactionIsRolledBackAndQueriesAreForgotten(bool $keeps): void
    {
        $connection = new SQLiteConnection(new \PDO('sqlite::memory:'));
        $connection->statement('CREATE TABLE t (x)');
        $databases = $this->createMock(DatabaseManager::class);
        $databases->method('getConnections')->willReturn(['main' => $connection]);
        $databases->expects($keeps ? self::never() : self::once())->method('purge')->with('main');
        $this->app->singleton('db', fn (): DatabaseManager => $databases);
        $sandbox = new Sandbox($this->app, [], $keeps);

        $this->app->make('db');
        $connection->enableQueryLog();
        $connection->beginTransaction();
        $connection->insert('INSERT INTO t VALUES (1)');
        $sandbox->restore();

        self::assertSame([], $connection->getQueryLog());
        self::assertFalse($connection->logging());
        self::assertSame(0, $connection->transactionLevel());
        self::assertSame([], $connection->select('SELECT * FROM t'));
    }

    /** @return iterable<string, array{bool}> */
    public static function connections(): iterable
    {
        yield 'connections are kept' => [true];
        yield 'connections are closed' => [false];
    }
}
