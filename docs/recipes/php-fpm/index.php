<?php
// A report of orders, in PHP's own arrays.
mt_srand((int) ($_GET['day'] ?? 0));
$orders = [];
for ($i = 0; $i < 50000; $i++) {
    $orders[] = ['id' => $i, 'customer' => 'customer ' . mt_rand(0, 5000), 'note' => str_repeat('x', mt_rand(20, 900))];
}
$groups = [];
foreach (json_decode(json_encode($orders), true) as $order) {
    $groups[$order['customer']][] = strlen($order['note']);
}
echo json_encode(array_map('array_sum', $groups));
