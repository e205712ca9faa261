<?php

/**
 * Plugin Name: Object cache of Pronghorn
 * Description: Keeps WordPress's objects in the memory that all workers of the server share.
 *
 * Copy it into wp-content. It takes pronghorn/wordpress, loaded in wp-config.php, and a storage
 * `kv.wordpress` of the server, or of the name in the constant PRONGHORN_STORAGE.
 */

declare(strict_types=1);

use Pronghorn\WordPress\ObjectCache;

// Functions in a block are there once it has run, others as soon as this file is read. Without them
// WordPress takes its own cache, as wp-admin/setup-config.php does, which knows no database yet.
if (defined('DB_NAME') && class_exists(ObjectCache::class)) {
    function wp_cache_init(): void
    {
        global $wp_object_cache, $table_prefix;
        $site = defined('WP_CACHE_KEY_SALT') ? WP_CACHE_KEY_SALT : DB_NAME . ".$table_prefix";
        $storage = defined('PRONGHORN_STORAGE') ? PRONGHORN_STORAGE : 'wordpress';
        $wp_object_cache = ObjectCache::open($storage, $site, is_multisite() ? get_current_blog_id() : 0);
    }

    function wp_cache_add($key, $data, $group = '', $expire = 0): bool
    {
        global $wp_object_cache;

        return !wp_suspend_cache_addition() && $wp_object_cache->add($key, $data, (string) $group, (int) $expire);
    }

    function wp_cache_add_multiple(array $data, $group = '', $expire = 0): array
    {
        $add = static fn ($key, $value): bool => wp_cache_add($key, $value, $group, $expire);

        return array_combine(array_keys($data), array_map($add, array_keys($data), $data));
    }

    function wp_cache_replace($key, $data, $group = '', $expire = 0): bool
    {
        global $wp_object_cache;

        return $wp_object_cache->replace($key, $data, (string) $group, (int) $expire);
    }

    function wp_cache_set($key, $data, $group = '', $expire = 0): bool
    {
        global $wp_object_cache;

        return $wp_object_cache->set($key, $data, (string) $group, (int) $expire);
    }

    function wp_cache_set_multiple(array $data, $group = '', $expire = 0): array
    {
        $set = static fn ($key, $value): bool => wp_cache_set($key, $value, $group, $expire);

        return array_combine(array_keys($data), array_map($set, array_keys($data), $data));
    }

    function wp_cache_get($key, $group = '', $force = false, &$found = null): mixed
    {
        global $wp_object_cache;

        return $wp_object_cache->get($key, (string) $group, (bool) $force, $found);
    }

    function wp_cache_get_multiple($keys, $group = '', $force = false): array
    {
        global $wp_object_cache;

        return $wp_object_cache->many(array_values((array) $keys), (string) $group, (bool) $force);
    }

    function wp_cache_delete($key, $group = ''): bool
    {
        global $wp_object_cache;

        return $wp_object_cache->delete($key, (string) $group);
    }

    function wp_cache_delete_multiple(array $keys, $group = ''): array
    {
        $delete = static fn ($key): bool => wp_cache_delete($key, $group);

        return array_combine($keys, array_map($delete, $keys));
    }

    function wp_cache_incr($key, $offset = 1, $group = ''): int|float|false
    {
        global $wp_object_cache;

        return $wp_object_cache->increment($key, (int) $offset, (string) $group);
    }

    function wp_cache_decr($key, $offset = 1, $group = ''): int|float|false
    {
        global $wp_object_cache;

        return $wp_object_cache->increment($key, -(int) $offset, (string) $group);
    }

    function wp_cache_flush(): bool
    {
        global $wp_object_cache;

        return $wp_object_cache->flush();
    }

    function wp_cache_flush_runtime(): bool
    {
        global $wp_object_cache;
        $wp_object_cache->forget();

        return true;
    }

    function wp_cache_flush_group($group): bool
    {
        global $wp_object_cache;

        return $wp_object_cache->flushGroup((string) $group);
    }

    function wp_cache_supports($feature): bool
    {
        return in_array($feature, ObjectCache::FEATURES, true);
    }

    function wp_cache_close(): bool
    {
        return true;
    }

    function wp_cache_add_global_groups($groups): void
    {
        global $wp_object_cache;
        $wp_object_cache->addGlobalGroups(array_values((array) $groups));
    }

    function wp_cache_add_non_persistent_groups($groups): void
    {
        global $wp_object_cache;
        $wp_object_cache->addPassingGroups(array_values((array) $groups));
    }

    function wp_cache_switch_to_blog($blog_id): void
    {
        global $wp_object_cache;
        $wp_object_cache->switchToBlog((int) $blog_id);
    }
} elseif (defined('DB_NAME')) {
    error_log("wp-content/object-cache.php: load Composer's autoload.php in wp-config.php, with pronghorn/wordpress");
}
