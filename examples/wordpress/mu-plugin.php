<?php

declare(strict_types=1);

// Permalinks without `index.php`: WordPress offers them with servers that it knows.
add_filter('got_url_rewrite', '__return_true');
