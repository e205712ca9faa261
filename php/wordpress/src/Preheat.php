<?php

declare(strict_types=1);

namespace Pronghorn\WordPress;

use Pronghorn\Worker;

/**
 * Answers each request in a process of its own, in which WordPress is loaded when the request comes
 * (`spawn: fork`, `max_jobs: 1`).
 *
 * WordPress loads up to an action. There a fiber waits, and goes on with the request. The action
 * `muplugins_loaded` is the last one before WordPress looks at a request: plugins, theme and page
 * notice nothing.
 */
final class Preheat
{
    /** With plugins: their files must not look at the request. Their functions may. */
    public const WITH_PLUGINS = 'plugins_loaded';
    public const WITHOUT_PLUGINS = 'muplugins_loaded';

    /**
     * @param string $root where WordPress's index.php lies
     * @param self::WITHOUT_PLUGINS|self::WITH_PLUGINS $until what is loaded ahead
     */
    public static function serve(string $root, string $until = self::WITHOUT_PLUGINS): void
    {
        if (!\in_array($until, [self::WITHOUT_PLUGINS, self::WITH_PLUGINS], true)) {
            throw new \ValueError(
                "WordPress can be loaded until `muplugins_loaded` or `plugins_loaded`, and not until `$until`."
            );
        }
        $index = \rtrim($root, '/') . '/index.php';
        $loading = self::load($index, $until);
        (new Worker())
            // Processes can't share a connection; each opens its own before its request comes.
            ->beforeFork(static fn (): bool => self::database()->close())
            ->afterFork(static fn (): bool => self::database()->db_connect(false))
            ->onRequest(static function () use ($loading, $index): void {
                self::answer($loading, $index);
            })
            ->run();
    }

    /** @return \Fiber<void, void, void, void> */
    private static function load(string $index, string $until): \Fiber
    {
        self::on($until, static function (): void {
            \Fiber::suspend();
        });
        self::on('enable_loading_advanced_cache_dropin', static function (): never {
            self::refuse('WP_CACHE is on, and wp-content/advanced-cache.php looks at the request');
        });
        self::on('enable_loading_object_cache_dropin', static function (mixed $isWanted): mixed {
            return \is_multisite() ? self::refuse('the request says which site of the network is meant') : $isWanted;
        });
        $hasReturned = false;
        \register_shutdown_function(static function () use (&$hasReturned): void {
            $hasReturned || \error_log(
                'WordPress has ended while it was loaded ahead of its requests. hint: `mode: classic` shows its pages,'
                    . ' also those that tell what is wrong'
            );
        });
        $loading = new \Fiber(static function () use ($index): void {
            require $index;
        });
        self::name($index);
        try {
            $loading->start();
        } finally {
            $hasReturned = true;
        }

        return $loading;
    }

    /** @param \Fiber<void, void, void, void> $loading */
    private static function answer(\Fiber $loading, string $index): void
    {
        if (!$loading->isSuspended()) {
            throw new \LogicException('This process has answered its one request. hint: `max_jobs: 1` in its pool');
        }
        self::name($index);
        // What WordPress has done by now and that depends on the request or the moment.
        \wp_fix_server_vars();
        \timer_start();
        \wp_cache_flush_runtime();
        \wp_maintenance();
        // The one place where a file of WordPress looks at the query while it is loaded.
        isset($_GET['replytocom']) && \add_filter('wp_robots', 'wp_robots_no_robots');
        self::database()->ready || self::database()->db_connect();
        $loading->resume();
    }

    /** WordPress takes functions that were there before it. */
    private static function on(string $hook, \Closure $function): void
    {
        $GLOBALS['wp_filter'][$hook][\PHP_INT_MIN][] = ['function' => $function, 'accepted_args' => 1];
    }

    private static function refuse(string $why): never
    {
        throw new \LogicException(
            "WordPress can't be loaded ahead of its requests: $why. hint: `mode: classic` for this pool"
        );
    }

    /** PHP has been told of the worker's script, and WordPress goes by its own. */
    private static function name(string $index): void
    {
        $_SERVER['SCRIPT_FILENAME'] = $index;
        $_SERVER['SCRIPT_NAME'] = $_SERVER['PHP_SELF'] = '/index.php';
        $_SERVER['DOCUMENT_ROOT'] = \dirname($index);
    }

    private static function database(): object
    {
        return $GLOBALS['wpdb'];
    }
}
