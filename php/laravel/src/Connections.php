<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Container\Container;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Database\Connection;
use Illuminate\Database\ConnectionInterface;
use Illuminate\Database\Connectors\ConnectionFactory;
use Illuminate\Database\Connectors\ConnectorInterface;
use Illuminate\Database\DatabaseManager;
use Illuminate\Database\Events\QueryExecuted;
use Pronghorn\HttpFoundation\Persistence;

/**
 * Hands open connections to databases from one request to the next.
 *
 * It keeps PDOs alone, each for the configuration it was opened with. Laravel's own connection,
 * with its prefix, grammar, listeners and log, is another one in each request. A PDO is not handed
 * on when a request may have changed what the next one would meet.
 */
final class Connections
{
    private const DRIVERS = ['mysql', 'mariadb', 'pgsql', 'sqlite', 'sqlsrv'];
    /** Connections that a process keeps at most; the ones used last. */
    private const MOST = 8;
    /** Seconds after which a connection that nobody used is asked whether it lives. */
    private const IDLE = 10;
    /** Statements that read and write rows. Others may change the session. */
    private const ROWS = '/^[\s(]*(?:select|insert|update|delete|replace|with|values|show|explain)\b/i';
    /** What lasts although it stands in one of these: variables, locks, a second statement. */
    private const LASTS = '/;\s*\S|:=|\binto\s+@|\bget_lock\b|advisory_lock|\bset_config\b|\binto\s+(local\s+)?temp/i';
    /** What may be asked for without the server; not all drivers have all of them. */
    private const ATTRIBUTES = [
        \PDO::ATTR_AUTOCOMMIT, \PDO::ATTR_CASE, \PDO::ATTR_DEFAULT_FETCH_MODE, \PDO::ATTR_EMULATE_PREPARES,
        \PDO::ATTR_ERRMODE, \PDO::ATTR_ORACLE_NULLS, \PDO::ATTR_STATEMENT_CLASS,
        \PDO::ATTR_STRINGIFY_FETCHES,
        1000, // a driver's own first one: buffered queries of MySQL, prepared statements of PostgreSQL
    ];

    /** @var \WeakMap<\PDO, array{string, array<int, mixed>}> key and attributes of those that may go on */
    private \WeakMap $known;
    /** @var array<string, array{\PDO, int}> and since when, by `hrtime()` */
    private array $idle = [];
    /** @var array<string, \PDO> of the request, which a destructor of its objects may still use */
    private array $left = [];
    /** @var \WeakMap<ConnectionInterface, true> */
    private \WeakMap $booted;
    /** @var \WeakMap<Connection, true> those that tell of a statement before it runs */
    private \WeakMap $watched;
    /** @var \WeakMap<Connection, true> those of which a request may have changed the session */
    private \WeakMap $changed;

    /** The application has booted. */
    public function __construct(private readonly Application $app, private readonly bool $keeps)
    {
        $this->known = new \WeakMap();
        $this->booted = new \WeakMap();
        $this->watched = new \WeakMap();
        $this->changed = new \WeakMap();
        self::ownSessions($app);
        $keeps && $this->watchAll();
        foreach (self::DRIVERS as $driver) {
            // Laravel asks the container first.
            $name = "db.connector.$driver";
            $app->bound($name) || $app->bind($name, static fn (): ConnectorInterface
                => (new ConnectionFactory(new Container()))->createConnector(['driver' => $driver]));
            $app->extend($name, fn (ConnectorInterface $inner): ConnectorInterface => $this->connector($inner));
        }
    }

    /**
     * Has each connection open a session of its own: a persistent one, which PHP gives out again
     * after it was closed, has all that the last visitor has set. So has that of a client of Redis.
     */
    public static function ownSessions(Application $app): void
    {
        $configuration = $app->make('config');
        foreach (['database.connections', 'database.redis'] as $name) {
            $given = $configuration->get($name);
            $own = \is_array($given) ? Persistence::without($given) : $given;
            $own === $given || $configuration->set($name, $own);
        }
    }

    /**
     * The connections of Laravel that the application holds since the boot. Each opens its PDO when
     * it is used next.
     *
     * @return list<Connection>
     */
    public function booted(): array
    {
        $booted = [];
        foreach ($this->opened() as $name => $connection) {
            $this->booted[$connection] = true;
            $this->keeps && $connection instanceof Connection && $this->watch($connection);
            if (!$connection instanceof Connection || $connection->getRawPdo() === null) {
                continue;
            }
            $booted[] = $connection;
            if ($this->isConfigured($name) && !self::isInMemory($connection->getConfig('database'))) {
                self::close($this->app->make('db'), $name, $connection);
            }
        }

        return $booted;
    }

    /** After a request, before the application goes back: rolls back and keeps what can be kept. */
    public function settle(): void
    {
        foreach ($this->opened() as $name => $connection) {
            if (self::rollBack($connection) && $connection instanceof Connection) {
                $this->keep($connection);
            }
            isset($this->booted[$connection]) || $this->databases()?->purge($name);
        }
    }

    /** The application has gone back, and nothing of the request can use its connections any more. */
    public function handOver(): void
    {
        [$left, $this->left] = [$this->left, []];
        $this->changed = new \WeakMap();
        foreach ($left as $key => $pdo) {
            try {
                $isClean = !self::rollBackUnseen($pdo) && self::attributes($pdo) === ($this->known[$pdo][1] ?? null);
            } catch (\PDOException) {
                $isClean = false;
            }
            if ($isClean) {
                $this->idle[$key] = [$pdo, \hrtime(true)];
            }
        }
        $this->idle = \array_slice($this->idle, -self::MOST, null, true);
    }

    /** Before workers are forked, which can't share one; one in memory is a copy in each. */
    public function closeAll(): void
    {
        $this->settle();
        $this->idle = $this->left = [];
        foreach ($this->opened() as $name => $connection) {
            $isLazy = $connection instanceof Connection && $connection->getRawPdo() instanceof \Closure;
            if (!$isLazy && !self::isInMemory($connection->getConfig('database'))) {
                $this->app->make('db')->purge($name);
            }
        }
    }

    /** @return array<string, ConnectionInterface> */
    private function opened(): array
    {
        return $this->databases()?->getConnections() ?? [];
    }

    /** A DatabaseManager, or what an application has in its place. */
    private function databases(): ?object
    {
        $databases = Held::made($this->app, 'db');

        return $databases !== null && \method_exists($databases, 'getConnections') ? $databases : null;
    }

    private function keep(Connection $connection): void
    {
        if (!isset($this->watched[$connection]) || isset($this->changed[$connection])) {
            return;
        }
        foreach (self::pdos($connection) as $pdo) {
            [$key, $attributes] = $this->known[$pdo] ?? ['', []];
            if ($key !== '' && self::attributes($pdo) === $attributes) {
                $this->left[$key] = $pdo;
            }
        }
    }

    private function isConfigured(string $name): bool
    {
        return $this->app->make('config')->get('database.connections.' . \explode('::', $name)[0]) !== null;
    }

    /** It stays in the services that hold it, and opens a PDO by its configuration when it needs one. */
    private static function close(DatabaseManager $databases, string $name, Connection $connection): void
    {
        $reopen = static function () use ($databases, $name, $connection): Connection {
            // A request may have put another one in its place.
            if (($databases->getConnections()[$name] ?? null) === $connection) {
                $databases->reconnect($name);
            }

            return $databases->connection($name);
        };
        $reads = $connection->getRawReadPdo() !== null;
        $connection->setPdo(static fn (): \PDO => $reopen()->getPdo());
        $reads && $connection->setReadPdo(static fn (): \PDO => $reopen()->getReadPdo());
    }

    /** Watches those that Laravel makes from now on, from their first statement on. */
    private function watchAll(): void
    {
        $watch = $this->watch(...);
        $replace = function () use ($watch): void {
            $this->factory = new WatchingFactory($this->factory, $watch);
        };
        $within = static function (object $databases) use ($replace): void {
            $databases instanceof DatabaseManager && $replace->bindTo($databases, DatabaseManager::class)();
        };
        $made = Held::made($this->app, 'db');
        $made === null ? $this->app->afterResolving('db', $within) : $within($made);
        // Others may have the same PDO, as those that an application makes itself.
        $this->app->bound('events') && $this->app->make('events')->listen(
            QueryExecuted::class,
            fn (QueryExecuted $it) => $this->note($it->sql, $it->connection),
        );
    }

    /** Also a statement that fails may have changed something: of those Laravel has no event. */
    private function watch(Connection $connection): void
    {
        // The first releases of Laravel 8 have none: of those connections none goes on.
        if (!isset($this->watched[$connection]) && \method_exists($connection, 'beforeExecuting')) {
            $connection->beforeExecuting(fn (mixed ...$it) => $this->note($it[0], $it[2]));
            $this->watched[$connection] = true;
        }
    }

    private function connector(ConnectorInterface $inner): ConnectorInterface
    {
        return new class (fn (array $config): \PDO => $this->connect($config, $inner)) implements ConnectorInterface {
            /** @param \Closure(array<string, mixed>): \PDO $connect */
            public function __construct(private readonly \Closure $connect)
            {
            }

            public function connect(array $config): \PDO
            {
                return ($this->connect)($config);
            }
        };
    }

    /**
     * One that is idle is given away once: whoever asks again in the same request has lost it.
     *
     * @param array<string, mixed> $config
     */
    private function connect(array $config, ConnectorInterface $inner): \PDO
    {
        $config = Persistence::without($config);
        $key = $this->keeps ? self::key($config) : '';
        [$pdo, $since] = $this->idle[$key] ?? [null, 0];
        unset($this->idle[$key]);
        if ($pdo !== null && self::lives($pdo, $since)) {
            return $pdo;
        }
        $pdo = $inner->connect($config);
        if ($pdo->getAttribute(\PDO::ATTR_PERSISTENT)) {
            // A connector of the application may do so of itself.
            $config['options'][\PDO::ATTR_PERSISTENT] = false;
            $pdo = $inner->connect($config);
        }
        if ($key !== '') {
            $this->known[$pdo] = [$key, self::attributes($pdo)];
        }

        return $pdo;
    }

    /**
     * Empty: what it opens is not handed on.
     *
     * @param array<string, mixed> $config
     */
    private static function key(array $config): string
    {
        try {
            return self::isInMemory($config['database'] ?? null) ? '' : \serialize($config);
        } catch (\Throwable) {
            return '';
        }
    }

    private static function lives(\PDO $pdo, int $since): bool
    {
        if (\hrtime(true) - $since < self::IDLE * 1_000_000_000) {
            return true;
        }
        try {
            return @$pdo->query('SELECT 1') !== false;
        } catch (\PDOException) {
            return false;
        }
    }

    /**
     * Before a statement: whoever comes next must not meet what it may set, also when it fails. The
     * connection may have no PDO yet, and get another one when it turns out to be lost.
     */
    private function note(string $sql, Connection $connection): void
    {
        if (\preg_match(self::ROWS, $sql) === 1 && \preg_match(self::LASTS, $sql) === 0) {
            return;
        }
        $this->changed[$connection] = true;
        foreach (self::pdos($connection) as $pdo) {
            unset($this->known[$pdo]);
        }
    }

    /** Whether there was none but what Laravel has begun. */
    private static function rollBack(ConnectionInterface $connection): bool
    {
        $isClean = true;
        try {
            $connection->transactionLevel() > 0 && $connection->rollBack(0);
        } catch (\Throwable) {
            // A statement such as CREATE TABLE has ended it, or the server is gone.
            $isClean = false;
        }
        foreach ($connection instanceof Connection ? self::pdos($connection) : [] as $pdo) {
            try {
                $isClean = !self::rollBackUnseen($pdo) && $isClean;
            } catch (\PDOException) {
                $isClean = false;
            }
        }

        return $isClean;
    }

    /** Whether one was begun past Laravel: on the PDO, or by SQL. */
    private static function rollBackUnseen(\PDO $pdo): bool
    {
        if ($pdo->inTransaction()) {
            $pdo->rollBack();

            return true;
        }
        if ($pdo->getAttribute(\PDO::ATTR_DRIVER_NAME) !== 'sqlite') {
            return false;
        }
        try {
            // PDO does not know of one that SQL has begun there.
            return @$pdo->exec('ROLLBACK') !== false;
        } catch (\PDOException) {
            return false;
        }
    }

    /** @return list<\PDO> */
    private static function pdos(Connection $connection): array
    {
        $isOpen = static fn (mixed $pdo): bool => $pdo instanceof \PDO;

        return \array_values(\array_filter([$connection->getRawPdo(), $connection->getRawReadPdo()], $isOpen));
    }

    /** @return array<int, mixed> */
    private static function attributes(\PDO $pdo): array
    {
        $attributes = [];
        foreach (self::ATTRIBUTES as $attribute) {
            try {
                $attributes[$attribute] = @$pdo->getAttribute($attribute);
            } catch (\PDOException) {
                // This driver does not have it.
            }
        }

        return $attributes;
    }

    private static function isInMemory(mixed $database): bool
    {
        return \str_contains((string) $database, ':memory:') || \str_contains((string) $database, 'mode=memory');
    }
}
