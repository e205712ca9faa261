<?php

// A page of an even older site: its address is all that it looks at.
$page = $_SERVER['PATH_INFO'] ?? '' ?: $_SERVER['REQUEST_URI'];
echo 'An old page: ', htmlspecialchars($page), "\n";
